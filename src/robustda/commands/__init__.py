"""The commands of the command line, by what they are about; each is a function of its arguments."""
