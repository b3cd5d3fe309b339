"""The states of threads and tasks (`thread_states`) and of the instance (`client_states`)."""
