//! Solver: from a template and a number of nodes to a layout, or to the reason why there is none.
