module sandyard/agent

go 1.27
