"""Where everybody is: last places, speeds on ways, holes in the coverage, handovers between edges, congestion."""
