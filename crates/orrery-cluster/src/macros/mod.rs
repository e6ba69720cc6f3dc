//! Macros in configurations: values of a cluster that are known when its layout is.
