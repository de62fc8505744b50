/** Title and code of programs that make a batch. `url` is the address of the inference host, without `/v1`. */
export const snippetsFor = (url: string): readonly (readonly [string, string])[] => [
  [
    'curl',
    `curl ${url}/v1/files -H "Authorization: Bearer $TOKENHOUSE_KEY" -F purpose=batch -F file=@requests.jsonl
curl ${url}/v1/batches -H "Authorization: Bearer $TOKENHOUSE_KEY" \\
  -d '{"input_file_id":"file-…","endpoint":"/v1/chat/completions","completion_window":"24h"}'`,
  ],
  [
    'Python',
    `import os
from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key=os.environ["TOKENHOUSE_KEY"])
file = client.files.create(file=open("requests.jsonl", "rb"), purpose="batch")
batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
print(batch.id)`,
  ],
  [
    'Anthropic',
    `import os
import anthropic

client = anthropic.Anthropic(base_url="${url}", api_key=os.environ["TOKENHOUSE_KEY"])
batch = client.messages.batches.create(requests=[
    {"custom_id": "one", "params": {"model": "…", "max_tokens": 200, "messages": [{"role": "user", "content": "Hi"}]}},
])
print(batch.id)`,
  ],
];

interface Ended {
  readonly id: string;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
}

/** How its results are fetched; empty: there are none yet. */
export function downloadCode(url: string, { id, output_file_id: output, error_file_id: errors }: Ended): string {
  const get = (path: string, name: string): string =>
    `curl ${url}/v1/${path} -H "Authorization: Bearer $TOKENHOUSE_KEY" -o ${name}.jsonl`;
  if (id.startsWith('msgbatch_')) return output === null ? '' : get(`messages/batches/${id}/results`, 'results');
  return [
    ...(output === null ? [] : [get(`files/${output}/content`, 'answers')]),
    ...(errors === null ? [] : [get(`files/${errors}/content`, 'errors')]),
  ].join('\n');
}
