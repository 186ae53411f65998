"""The screen: what a candidate's program needs, from StableHLO and Shardy, without a compile."""
