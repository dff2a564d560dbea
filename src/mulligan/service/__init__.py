"""What every face calls: `service.Service`, in rooms by what is asked; each says at its top what it is for."""
