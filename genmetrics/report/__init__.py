"""Reports: what a run found as JSON, as a terminal table and as a page of HTML."""
