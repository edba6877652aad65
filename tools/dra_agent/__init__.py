"""A DRA driver whose devices are in a JSON file, and commands for operators, on draState.plugin.

inventory.py reads the file, driver.py offers its devices and what a claim may ask for; cli.py serves
them, and operate.py shows and releases claims.
"""
