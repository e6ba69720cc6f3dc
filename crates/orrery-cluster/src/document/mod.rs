//! Documents of administrators: providers, hardware and image types, services, templates, tenants.
