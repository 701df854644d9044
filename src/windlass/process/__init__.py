"""Parts that every process of Windlass needs: services, clocks, signals, channels and figures."""
