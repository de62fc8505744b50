/** A configuration that uses every setting. */
export const goodFile = `
server:
  inference: { host: 0.0.0.0, port: 9080, public_url: "https://tokens.example.org/api/" }
  account:   { host: "::1", port: 9081 }
  trusted_proxies: [127.0.0.1, "2001:db8::/64"]
  limits:
    body_bytes_max: 1000000
    bodies_in_flight_bytes_max: 2000000
    drain_timeout_seconds: 2.5
    concurrency_per_account_max: 8
storage: sqlite:./data/my.db                    # or postgres://…
accounts: { first_credit_cents: 500.50 }
images: { fetch: true, allow_hosts: [Files.LAN., "10.0.0.7:8443"], dns_servers: ["127.0.0.1:5353"] }
models:
  - id: smollm2-135m-instruct
    display_name: SmolLM2 135M Instruct
    description: Small.
    owned_by: somebody
    context_length: 8192
    max_output_tokens: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 0.10, cache_read_microcents_per_million: 2500000 }
    sampling: honor
    capabilities: { vision: false, tools: false, reasoning: false }
    template: { default_system: none }
    backends:
      - engine: llama
        sources:
          - models/small.gguf
          - hf:owner/repository/small.gguf@main
          - pypi:small-model==1.0
        sha256: ${'AB'.repeat(32)}
        bytes: 98362432
        slots: 2
        queue: 10
        threads: 2
  - id: qwen3-32b
    context_length: 32768
    max_output_tokens: null
    pricing: { input_cents_per_million: 30, output_cents_per_million: 90 }
    backends:
      - { engine: openai, name: gpu, flavor: vllm, url: "http://10.0.0.5:8000/v1/", zdr: true, max_concurrency: 64 }
      - { engine: openai, flavor: llama-server, url: "http://10.0.0.6:8000/v1", model: qwen, api_key_env: UPSTREAM_KEY }
  - id: demo
    context_length: 4096
    pricing: { input_cents_per_million: 0, output_cents_per_million: 0 }
    sampling: ignore
    backends:
      - engine: scripted
        scripts:
          - { text: hello }
`;
