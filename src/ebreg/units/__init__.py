"""Units: standardised columns, bounds of the targets, and the tail of the energy."""

from ebreg.units.bounds import Bounds
from ebreg.units.standardizer import Standardizer
from ebreg.units.tail import Tail
from ebreg.units.units import Units

__all__ = ["Bounds", "Standardizer", "Tail", "Units"]
