//! Types, dataflow evaluation and standard plugins of the modelling language.
