"""Squares in Spark are bit-identical to those of the model."""

from random import Random

from pyspark.sql import SparkSession

from milepost.model.incidents import Grid
from milepost.model.places import Place
from milepost.pipelines.hazards import with_square

CORNERS = [(90.0, 180.0), (-90.0, -180.0), (90.0, -180.0), (0.0, 180.0), (0.0, -0.0), (89.9999999, 0.0), (-1e-7, 1e-7)]
SIDES_M = (10.0, 150.0, 300.0, 50_000.0)


def test_every_place_is_in_the_same_square_as_in_the_model(spark: SparkSession) -> None:
    random = Random(7)
    places = [*CORNERS, *((random.uniform(-90, 90), random.uniform(-180, 180)) for _ in range(500))]
    grids = {grid.height: grid for grid in map(Grid, SIDES_M)}
    rows = [(latitude, longitude, height) for latitude, longitude in places for height in grids]
    found = with_square(spark.createDataFrame(rows, "latitude double, longitude double, height bigint")).collect()
    assert len(found) == len(rows)
    for row in found:
        spot = grids[row["height"]].locate(Place(row["latitude"], row["longitude"]))
        assert (row["row"], row["column"], row["north"], row["east"]) == (*spot.square, spot.north, spot.east)
