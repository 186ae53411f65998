"""The network model against published collectives, as it ships and with each row left out of the fit.

    python benchmarks/network_error.py

Left out means: the constants that were taken from published rows (launch floor, efficiency of the links, floor of a v7x
all-reduce) are fitted anew to the other rows by a grid over the mean error, and the row is predicted with them. The v7x
row is the only one of its kind, so without it there is nothing to know its floor from; that error is shown as it is.
"""

import importlib.util
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean

from tuner.calibration.calibration import CALIBRATIONS

FILE = Path(__file__).parents[1] / "tests/tuner/network/test_published.py"
spec = importlib.util.spec_from_file_location("published", FILE)
published = importlib.util.module_from_spec(spec)
spec.loader.exec_module(published)


def constants(launch_s, efficiency, v7x_s):
    shipped = {name: replace(c, launch_s=launch_s, link_efficiency=efficiency) for name, c in CALIBRATIONS.items()}
    floors = (("all-reduce", v7x_s),) if v7x_s else ()
    return {**shipped, "v7x": replace(shipped["v7x"], launches=floors)}


def means(found):
    return {row: fmean(map(abs, values)) for row, values in found.items()}


def main():
    grid = list(product((2e-6, 3e-6, 4e-6, 5e-6, 6e-6), (0.88, 0.9, 0.92, 0.94, 0.96, 0.98, 1.0)))
    floors = {"": (7.5e-5, 8.5e-5, 9.5e-5), "allreduce-v7x-32": (None,)}
    tried = {}
    shipped = means(published.errors(CALIBRATIONS))
    for row in published.ROWS:
        fits = []
        for choice in ((*rest, floor) for rest in grid for floor in floors.get(row, floors[""])):
            if choice not in tried:
                tried[choice] = means(published.errors(constants(*choice)))
            others = fmean(error for name, error in tried[choice].items() if name != row)
            fits.append((others, choice))
        _, best = min(fits, key=lambda fit: fit[0])
        left_out = published.errors(constants(*best))[row]
        signed = ", ".join(f"{100 * error:+.1f}" for error in left_out)
        print(
            f"{row:26} as shipped {100 * shipped[row]:5.1f} %; left out {100 * fmean(map(abs, left_out)):5.1f} % "
            f"({signed}) with floor {best[0] * 1e6:.0f} us, efficiency {best[1]:.2f}"
        )
    print(f"{'mean of rows':26} as shipped {100 * fmean(shipped.values()):5.1f} %")


if __name__ == "__main__":
    main()
