import { useGet } from '../api/use-api.ts';
import { snippetsFor } from './client-code.ts';
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
