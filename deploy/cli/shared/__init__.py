"""What commands share: the client of the API, options and their types, output, results, errors."""
