section_sizes() { "$tables" sizes; }
