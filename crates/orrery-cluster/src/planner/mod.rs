//! Planner: what has to be done, in which order, to get from one layout to another.
