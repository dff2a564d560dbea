# Snakemake: one rule that says hello.
rule hello:
    output: "hello.txt"
    shell: "echo hello > {output}"
