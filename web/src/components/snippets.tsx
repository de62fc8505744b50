import { useGet } from '../api/use-api.ts';
import { CodeBlock } from './code.tsx';
import { Skeleton } from './state.tsx';
import { Tabs } from './tabs.tsx';

interface SnippetsProps {
  /** Of the key; a stand-in where it is not known any more. */
  readonly secret: string;
  readonly model: string;
  readonly onCopied?: () => void;
}

/** How a program calls the model, ready to run: the proper names of clients are their titles in every language. */
export function Snippets({ secret, model, onCopied }: SnippetsProps) {
  const { data } = useGet('/v1/server');
  if (data === undefined) return <Skeleton lines={4} />;
  const url = data.inference_url ?? location.origin;
  const copied = onCopied === undefined ? {} : { onCopied };
  return (
    <Tabs
      label=".env, curl, Python, JavaScript, Claude Code, Codex"
      tabs={snippetsFor(url, secret, model).map(([title, code]) => ({
        value: title,
        title,
        content: <CodeBlock label={title} code={code} {...copied} />,
      }))}
    />
  );
}

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
  [
    'Claude Code',
    `ANTHROPIC_BASE_URL=${url} ANTHROPIC_AUTH_TOKEN=${secret} ANTHROPIC_API_KEY= \\
  claude --model ${model}`,
  ],
  [
    'Codex',
    `TOKENHOUSE_KEY=${secret} codex -m ${model} \\
  -c model_provider=tokenhouse \\
  -c 'model_providers.tokenhouse={name="Tokenhouse", base_url="${url}/v1", env_key="TOKENHOUSE_KEY", wire_api="responses"}'`,
  ],
];
