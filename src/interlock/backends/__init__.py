"""One folder or file for each product a store can live in."""
