"""Read queries of people's views: columns instead of documents, pages by key, a fixed number of statements."""
