"""place: splits pending graphs into host work and transform stages."""
