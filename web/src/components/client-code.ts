/** Title and code. `url` is the address of the inference host, without `/v1`. */
export const snippetsFor = (url: string, secret: string, model: string): readonly (readonly [string, string])[] => [
  [
    'curl',
    `curl ${url}/v1/chat/completions \\
  -H "Authorization: Bearer ${secret}" \\
  -H "Content-Type: application/json" \\
  -d '{"model":"${model}","messages":[{"role":"user","content":"What is the capital of France?"}]}'`,
  ],
  ['.env', `OPENAI_BASE_URL=${url}/v1\nOPENAI_API_KEY=${secret}`],
  [
    'Python',
    `from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key="${secret}")
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "What is the capital of France?"}],
)
print(answer.choices[0].message.content)`,
  ],
  [
    'JavaScript',
    `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: '${url}/v1', apiKey: '${secret}' });
const answer = await client.chat.completions.create({
  model: '${model}',
  messages: [{ role: 'user', content: 'What is the capital of France?' }],
});
console.log(answer.choices[0].message.content);`,
  ],
  ['Claude Code', claudeCommand(url, secret, model)],
  ['Codex', codexCommand(url, secret, model)],
];

/** `more`: further arguments, quoted. */
export const claudeCommand = (url: string, secret: string, model: string, more: readonly string[] = []): string =>
  [
    `ANTHROPIC_BASE_URL=${url} ANTHROPIC_AUTH_TOKEN=${secret} ANTHROPIC_API_KEY=`,
    `claude --model ${model}`,
    ...more,
  ].join(' \\\n  ');

/** `verb`: `exec` for a single task. */
export const codexCommand = (
  url: string,
  secret: string,
  model: string,
  more: readonly string[] = [],
  verb = '',
): string =>
  [
    `TOKENHOUSE_KEY=${secret} codex${verb === '' ? '' : ` ${verb}`} -m ${model}`,
    '-c model_provider=tokenhouse',
    `-c 'model_providers.tokenhouse={name="Tokenhouse", base_url="${url}/v1", env_key="TOKENHOUSE_KEY", wire_api="responses"}'`,
    ...more,
  ].join(' \\\n  ');
