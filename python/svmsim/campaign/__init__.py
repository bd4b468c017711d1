"""Campaigns: sweeps over scenarios, their execution here or on a cluster, their files."""

from svmsim.campaign.axes import Repeat, Sample, SampleRange, When
from svmsim.campaign.campaign import Campaign

__all__ = ["Campaign", "Repeat", "Sample", "SampleRange", "When"]
