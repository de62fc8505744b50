import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { mayMakeKeys, useSession } from '../../api/session.ts';
import { getFile, useGet, useList, useSend } from '../../api/use-api.ts';
import type { Row } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import type { Tone } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { CodeBlock, Id } from '../../components/code.tsx';
import { ConfirmDialog, Dialog } from '../../components/dialog.tsx';
import { Count, Money, Time } from '../../components/figures.tsx';
import { FormButtons } from '../../components/form.tsx';
import { Meter } from '../../components/meter.tsx';
import { Facts, Page, Panel } from '../../components/page.tsx';
import { SaveButton } from '../../components/save-button.tsx';
import { EmptyState } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { useText } from '../../i18n/text.ts';
import { batchesRoute } from './routes.ts';
import { downloadCode, snippetsFor } from './batch-code.ts';
import type { BatchTexts } from './messages/en.ts';
import styles from './batches.module.css';

type Batch = Row<'/v1/batch_runs'>;

const states: Readonly<Record<Batch['status'], readonly [keyof BatchTexts, Tone]>> = {
  validating: ['validating', 'plain'],
  failed: ['failed', 'bad'],
  in_progress: ['in_progress', 'good'],
  finalizing: ['finalizing', 'good'],
  completed: ['completed', 'plain'],
  expired: ['expired', 'warn'],
  cancelling: ['cancelling', 'warn'],
  cancelled: ['cancelled', 'warn'],
};

export default function BatchesPage() {
  const t = useText<BatchTexts>('batches');
  const { account } = useSession();
  return (
    <Page title={t('title')} lead={t('lead')}>
      {account !== undefined && <Batches />}
    </Page>
  );
}

function Batches() {
  const t = useText<BatchTexts>('batches');
  const list = useList('/v1/batch_runs', undefined, { every: 3_000, pageSize: 20 });
  const { batch: openId } = batchesRoute.useSearch();
  const navigate = batchesRoute.useNavigate();
  // As it is now: a batch that is open goes on while one looks at it.
  const open = list.rows.find(({ id }) => id === openId);
  const columns: readonly Column<Batch>[] = [
    {
      head: t('batch'),
      main: true,
      cell: ({ id }) => (
        <Link className={styles['name']} to="/batches" search={{ batch: id } as never} resetScroll={false} title={id}>
          {`${id.slice(0, id.indexOf('_') + 9)}…`}
        </Link>
      ),
    },
    { head: t('state'), cell: (batch) => <State of={batch} /> },
    { head: t('progress'), cell: (batch) => <Progress of={batch} /> },
    { head: t('for'), cell: ({ endpoint, models }) => models[0] ?? endpoint },
    { head: t('cost'), number: true, cell: ({ cost_microcents: cost }) => <Money microcents={cost} /> },
    { head: t('created'), cell: ({ created_at: at }) => <Time at={at} relative /> },
  ];
  return (
    <Panel flush>
      <DataTable label={t('title')} columns={columns} list={list} keyOf={({ id }) => id} empty={<HowTo />} />
      {open !== undefined && (
        <BatchDialog of={open} onClose={() => void navigate({ search: {} as never, resetScroll: false })} />
      )}
    </Panel>
  );
}

function State({ of: { status } }: { readonly of: Batch }) {
  const t = useText<BatchTexts>('batches');
  const [text, tone] = states[status];
  return <Badge tone={tone}>{t(text)}</Badge>;
}

function Progress({ of: { status, requests, completed, failed } }: { readonly of: Batch }) {
  const t = useText<BatchTexts>('batches');
  // Lines that were never run count as failed there.
  const done = status === 'cancelled' || status === 'expired' ? completed : completed + failed;
  return (
    <Meter label={t('progress')} value={done} max={Math.max(1, requests)} isProgress>
      {failed === 0 ? t('of', { done, total: requests }) : t('ofUnanswered', { done, total: requests, n: failed })}
    </Meter>
  );
}

/** Buttons for the files that there are. */
function Results({ of: { id, output_file_id: output, error_file_id: error } }: { readonly of: Batch }) {
  const t = useText<BatchTexts>('batches');
  const kinds = [
    ...(output === null ? [] : ([['output', t('saveAnswers')]] as const)),
    ...(error === null ? [] : ([['error', t('saveErrors')]] as const)),
  ];
  return kinds.map(([file, text]) => (
    <SaveButton
      key={file}
      name={`${id}_${file}.jsonl`}
      load={() => getFile('/v1/batch_runs/{id}/results', { path: { id }, query: { file } })}
    >
      {text}
    </SaveButton>
  ));
}

/** Where there are none: the programs that make one. */
function HowTo() {
  const t = useText<BatchTexts>('batches');
  const { data } = useGet('/v1/server');
  const url = data?.inference_url ?? location.origin;
  return (
    <>
      <EmptyState title={t('empty')}>{t('emptyText')}</EmptyState>
      <Tabs
        label="curl, Python, Anthropic"
        tabs={snippetsFor(url).map(([title, code]) => ({
          value: title,
          title,
          content: <CodeBlock label={title} code={code} />,
        }))}
      />
    </>
  );
}

function BatchDialog({ of: batch, onClose }: { readonly of: Batch; readonly onClose: () => void }) {
  const t = useText<BatchTexts>('batches');
  const { may } = useSession();
  const { data } = useGet('/v1/server');
  const [isAsked, setAsked] = useState(false);
  const cancel = useSend('post', '/v1/batch_runs/{id}/cancel', { refreshes: ['/v1/batch_runs'] });
  const { id, status, endpoint, models, ended_at: endedAt, faults } = batch;
  const isStoppable = status === 'validating' || status === 'in_progress';
  if (isAsked && isStoppable)
    return (
      <ConfirmDialog
        title={t('cancelAsk')}
        action={t('cancel')}
        danger
        busy={cancel.isPending}
        error={cancel.error}
        onConfirm={() => cancel.mutate({ params: { path: { id } } }, { onSuccess: () => setAsked(false) })}
        onClose={() => setAsked(false)}
      >
        {t('cancelText')}
      </ConfirmDialog>
    );
  const code = downloadCode(data?.inference_url ?? location.origin, batch);
  return (
    <Dialog title={t('batch')} onClose={onClose} wide>
      <Facts
        facts={[
          [t('batch'), <Id value={id} />],
          [t('state'), <State of={batch} />],
          [t('for'), models.length === 0 ? endpoint : `${endpoint} · ${models.join(', ')}`],
          [t('answered'), <Count value={batch.completed} />],
          [t('withoutAnswer'), <Count value={batch.failed} />],
          [t('cost'), <Money microcents={batch.cost_microcents} />],
          [t('key'), <Id value={batch.key_id} />],
          endedAt === null
            ? [t('endsBy'), <Time at={batch.expires_at} full />]
            : [t('ended'), <Time at={endedAt} full />],
        ]}
      />
      {faults.length > 0 && (
        <>
          <h3>{t('faults')}</h3>
          <Facts
            facts={faults.map(({ line, param, message }) => [
              `${line === null ? '' : t('line', { line })} ${param ?? ''}`,
              message,
            ])}
          />
        </>
      )}
      {code !== '' && (
        <>
          <h3>{t('download')}</h3>
          <CodeBlock label={t('download')} code={code} />
        </>
      )}
      <FormButtons>
        <Button onClick={onClose}>{t('close')}</Button>
        {may(mayMakeKeys) && <Results of={batch} />}
        {isStoppable && may(mayMakeKeys) && <Button onClick={() => setAsked(true)}>{t('cancel')}</Button>}
      </FormButtons>
    </Dialog>
  );
}
