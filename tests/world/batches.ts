/** Batches of a schedule; some are cancelled, and of some the file is deleted while they run. */
import { ask, type Answer } from './clients.ts';
import { bodyOf, markOf, pathOf } from './dialects.ts';
import { lengthMs, type BatchAsked, type BatchResult, type Story } from './story.ts';

export function batchesOf(story: Story): Promise<void>[] {
  const { scheduler } = story;
  const often = story.theme === 'batches' || story.theme === 'clocks' ? 3 : scheduler.pick([0, 0, 0, 1, 2]);
  return Array.from({ length: often }, async (_, number) => {
    await scheduler.sleep(0.5 * lengthMs * scheduler.random());
    await story.host.comesUp();
    const made = await makeBatch(story, number);
    if (made === undefined || !scheduler.chance(0.35)) return;
    await scheduler.sleep(600 * scheduler.random());
    await story.host.comesUp();
    const isCancel = scheduler.chance(0.5);
    made.batch.isDisturbed = true;
    const { status } = isCancel
      ? await call(story, 'POST', `/v1/batches/${made.batch.id}/cancel`)
      : await call(story, 'DELETE', `/v1/files/${made.fileId}`);
    scheduler.note(`${isCancel ? 'cancels the batch' : 'deletes its file'}: ${status}`);
  });
}

function call(
  { scheduler, host, template }: Story,
  method: string,
  path: string,
  body = '',
  type = 'application/json',
): Promise<Answer> {
  const headers = body === '' ? {} : { 'content-type': type };
  return ask(scheduler, host, { host: 'inference', method, path, key: template.owner.key, headers, body });
}

async function makeBatch(
  story: Story,
  number: number,
): Promise<{ readonly batch: BatchAsked; readonly fileId: string } | undefined> {
  const { scheduler } = story;
  const api = scheduler.pick(['chat', 'chat', 'completions', 'responses', 'embeddings'] as const);
  const wanted = { api, model: api === 'embeddings' ? 'e' : 'm', tokensMax: 16, isStreamed: false, tier: undefined };
  const customIds = Array.from({ length: scheduler.between(2, 8) }, (_, line) => markOf(100 * (number + 1) + line));
  const endpoint = pathOf[api];
  const lines = customIds.map((id) => ({ custom_id: id, method: 'POST', url: endpoint, body: bodyOf(wanted, id) }));
  const file = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
  const part = 'content-disposition: form-data; name=';
  const form = `--x\r\n${part}"purpose"\r\n\r\nbatch\r\n--x\r\n${part}"file"; filename="b.jsonl"\r\n\r\n${file}\r\n--x--\r\n`;
  const uploaded = await call(story, 'POST', '/v1/files', form, 'multipart/form-data; boundary=x');
  scheduler.note(`uploads ${uploaded.status}`);
  if (uploaded.status !== 200 || !uploaded.isWhole) return undefined;
  const { id: fileId } = JSON.parse(uploaded.body) as { readonly id: string };
  const asks = { input_file_id: fileId, endpoint, completion_window: '24h' };
  const made = await call(story, 'POST', '/v1/batches', JSON.stringify(asks));
  scheduler.note(`batch ${made.status}`);
  if (made.status !== 200 || !made.isWhole) return undefined;
  const { id } = JSON.parse(made.body) as { readonly id: string };
  const batch: BatchAsked = { id, endpoint, customIds, isDisturbed: false, status: 'created', results: [] };
  story.batches.push(batch);
  return { batch, fileId };
}

const ends = ['completed', 'expired', 'failed', 'cancelled'];

/** Batches have to end, and their results are read. */
export async function batchesEnd(story: Story): Promise<void> {
  const { scheduler, host } = story;
  for (const batch of story.batches) {
    let files: readonly (string | null)[] = [];
    for (let looks = 0; looks < 400 && !ends.includes(batch.status); looks++) {
      await host.comesUp();
      const { status, body, isWhole } = await call(story, 'GET', `/v1/batches/${batch.id}`);
      if (status === 200 && isWhole) {
        const shown = JSON.parse(body) as Shown;
        batch.status = shown.status;
        files = [shown.output_file_id, shown.error_file_id];
      }
      await scheduler.sleep(500);
    }
    const texts: string[] = [];
    for (const file of files)
      if (file !== null) texts.push((await call(story, 'GET', `/v1/files/${file}/content`)).body);
    const lines = texts
      .join('')
      .split('\n')
      .filter((line) => line !== '');
    batch.results = lines.map((line) => JSON.parse(line) as BatchResult);
    scheduler.note(`batch ${batch.status}, ${lines.length} results`);
  }
}

interface Shown {
  readonly status: string;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
}
