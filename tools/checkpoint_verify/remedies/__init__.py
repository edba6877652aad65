"""What can be done about damage: the choices as commands, and the changes that repair and quarantine make."""
