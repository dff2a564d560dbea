"""HTTP itself: routes, paths, bodies, headers, uploads, problem details."""
