"""interlock in the clothes of other libraries. Each module needs the library it is named after."""
