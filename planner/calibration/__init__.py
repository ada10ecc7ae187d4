"""Calibration: records of measured step times, collectors and fits."""
