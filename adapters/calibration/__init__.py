"""Timing single operations on attached devices, for `meshwright calibrate`."""
