"""Monitoring streams at many sites: which messages sites and coordinators exchange, and when. It opens no connections."""

from lately.monitor.announcement import Announcement, FrequentKeys
from lately.monitor.coordinator import Coordinator
from lately.monitor.distcm import DistributedCountMin
from lately.monitor.frequent import Frequent
from lately.monitor.messages import Message, decode
from lately.monitor.monitor import Monitor
from lately.monitor.queries import Count, InnerProduct, KeyRange, RangeSum, SelfJoin
from lately.monitor.simulation import Simulation, simulate
from lately.monitor.site import Site
from lately.monitor.sketch import Ecm, FastAms

__all__ = [
    "Announcement",
    "Coordinator",
    "Count",
    "DistributedCountMin",
    "Ecm",
    "FastAms",
    "Frequent",
    "FrequentKeys",
    "InnerProduct",
    "KeyRange",
    "Message",
    "Monitor",
    "RangeSum",
    "SelfJoin",
    "Simulation",
    "Site",
    "decode",
    "simulate",
]
