"""Inspection of fitted models: a certificate that a fit is optimal, and what is wrong with one, in words."""

from ._certificate import Certificate, certificate
from ._diagnosis import Diagnosis, diagnose

__all__ = ["Certificate", "Diagnosis", "certificate", "diagnose"]
