"""The lookup service and the dashboard: one ASGI application over one store."""
