"""Go text templates, as users of DPF write them in DPUFlavorTemplates and in templates for bf.cfg."""
