"""Which lane holds which element: registers dumped on a device and compared with the layouts."""
