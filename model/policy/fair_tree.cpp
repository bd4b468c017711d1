#include "model/policy/fair_tree.hpp"

#include <algorithm>

namespace svmsim::model {

namespace {

// SplitMix64's finaliser: a well-mixed priority out of a counter.
std::uint32_t mixed(std::uint64_t value) {
  value = (value + 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return static_cast<std::uint32_t>(value >> 32);
}

void update(SchedEntity& node) {
  node.subtree_min_vruntime = node.vruntime;
  for (const SchedEntity* child : {node.left, node.right}) {
    if (child != nullptr)
      node.subtree_min_vruntime = std::min(node.subtree_min_vruntime, child->subtree_min_vruntime);
  }
}

}  // namespace

SchedEntity* FairTree::merge(SchedEntity* left, SchedEntity* right) {
  if (left == nullptr) return right;
  if (right == nullptr) return left;
  if (left->heap_priority >= right->heap_priority) {
    left->right = merge(left->right, right);
    update(*left);
    return left;
  }
  right->left = merge(left, right->left);
  update(*right);
  return right;
}

void FairTree::split(SchedEntity* tree, const SchedEntity& at, SchedEntity*& left, SchedEntity*& right) {
  if (tree == nullptr) {
    left = right = nullptr;
    return;
  }
  if (before(*tree, at)) {
    SchedEntity* rest = nullptr;
    split(tree->right, at, rest, right);
    tree->right = rest;
    left = tree;
  } else {
    SchedEntity* rest = nullptr;
    split(tree->left, at, left, rest);
    tree->left = rest;
    right = tree;
  }
  update(*tree);
}

void FairTree::insert(SchedEntity& entity) {
  entity.order = next_order_++;
  entity.heap_priority = mixed(entity.order);
  entity.left = entity.right = nullptr;
  update(entity);
  SchedEntity* left = nullptr;
  SchedEntity* right = nullptr;
  split(root_, entity, left, right);
  root_ = merge(merge(left, &entity), right);
  ++size_;
}

SchedEntity* FairTree::remove(SchedEntity* tree, const SchedEntity& entity) {
  if (tree == &entity) return merge(tree->left, tree->right);
  if (before(entity, *tree)) {
    tree->left = remove(tree->left, entity);
  } else {
    tree->right = remove(tree->right, entity);
  }
  update(*tree);
  return tree;
}

void FairTree::erase(SchedEntity& entity) {
  root_ = remove(root_, entity);
  entity.left = entity.right = nullptr;
  --size_;
}

SchedEntity* FairTree::first() const noexcept {
  SchedEntity* node = root_;
  while (node != nullptr && node->left != nullptr)
    node = node->left;
  return node;
}

SchedEntity* FairTree::last() const noexcept {
  SchedEntity* node = root_;
  while (node != nullptr && node->right != nullptr)
    node = node->right;
  return node;
}

SchedEntity* FairTree::second() const noexcept {
  SchedEntity* parent = nullptr;
  SchedEntity* node = root_;
  while (node != nullptr && node->left != nullptr) {
    parent = node;
    node = node->left;
  }
  if (node == nullptr || node->right == nullptr) return parent;
  node = node->right;
  while (node->left != nullptr)
    node = node->left;
  return node;
}

}  // namespace svmsim::model
