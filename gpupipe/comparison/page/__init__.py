"""page: the HTML page of a comparison, one file that needs no network."""

from .write import check_page, page_of, write_page

__all__ = ["check_page", "page_of", "write_page"]
