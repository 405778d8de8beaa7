"""The plug-in, which StreamFlow finds by its entry point."""

from streamflow.ext.plugin import StreamFlowPlugin

from streamflow_qtide.connector import QuantumConnector


class QtidePlugin(StreamFlowPlugin):
    """Registers the connector under the type `qtide`."""

    def register(self) -> None:
        """Called once, when StreamFlow starts."""
        self.register_connector("qtide", QuantumConnector)
