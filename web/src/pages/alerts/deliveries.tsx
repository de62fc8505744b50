import { Link } from '@tanstack/react-router';

import { useList, useSend } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import type { Tone } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { CodeBlock, Id } from '../../components/code.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Time } from '../../components/figures.tsx';
import { FormButtons } from '../../components/form.tsx';
import { Facts, Panel } from '../../components/page.tsx';
import { EmptyState, ErrorNote } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { endpointRoute } from './routes.ts';
import { indented } from './indented.ts';
import type { Delivery } from './events.ts';
import type { AlertTexts } from './messages/en.ts';
import styles from './alerts.module.css';

const states: Readonly<Record<Delivery['state'], readonly [keyof AlertTexts, Tone]>> = {
  waiting: ['waiting', 'plain'],
  delivered: ['delivered', 'good'],
  failed: ['failed', 'bad'],
  dropped: ['dropped', 'warn'],
};

/** What was sent to an endpoint, and what it answered. */
export function Deliveries({ of: id }: { readonly of: string }) {
  const t = useText<AlertTexts>('alerts');
  const list = useList('/v1/webhook_endpoints/{id}/deliveries', { path: { id } }, { every: 2000 });
  const { delivery: openId } = endpointRoute.useSearch();
  const navigate = endpointRoute.useNavigate();
  // As it is now: a delivery that is open changes while one looks at it.
  const open = list.rows.find((delivery) => delivery.id === openId);
  const columns: readonly Column<Delivery>[] = [
    {
      head: t('event'),
      main: true,
      cell: (delivery) => (
        <Link
          className={styles['row']}
          to={`/alerts/webhooks/${id}`}
          search={{ delivery: delivery.id } as never}
          resetScroll={false}
        >
          {delivery.type}
        </Link>
      ),
    },
    { head: t('state'), cell: (delivery) => <State of={delivery} /> },
    { head: t('answer'), cell: ({ response_status: status, failure }) => status ?? failure ?? '–' },
    { head: t('tries'), number: true, cell: ({ tries }) => tries },
    { head: t('at'), cell: ({ created_at: at }) => <Time at={at} relative /> },
    { head: t('nextTry'), cell: ({ next_try_at: at }) => (at === null ? '–' : <Time at={at} relative />) },
  ];
  return (
    <Panel title={t('deliveries')} flush>
      <DataTable
        label={t('deliveries')}
        columns={columns}
        list={list}
        keyOf={(delivery) => delivery.id}
        empty={<EmptyState title={t('noDeliveries')}>{t('noDeliveriesText')}</EmptyState>}
      />
      {open !== undefined && (
        <DeliveryDialog of={open} onClose={() => void navigate({ search: {} as never, resetScroll: false })} />
      )}
    </Panel>
  );
}

function State({ of: { state } }: { readonly of: Delivery }) {
  const t = useText<AlertTexts>('alerts');
  const [text, tone] = states[state];
  return <Badge tone={tone}>{t(text)}</Badge>;
}

function DeliveryDialog({ of: delivery, onClose }: { readonly of: Delivery; readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const replay = useSend('post', '/v1/webhook_deliveries/{id}/replay', { refreshes: ['/v1/webhook_endpoints'] });
  const { response_status: status, response_body: answer, failure } = delivery;
  return (
    <Dialog title={delivery.type} onClose={onClose} wide>
      {replay.error !== null && <ErrorNote error={replay.error} />}
      <Facts
        facts={[
          [t('state'), <State of={delivery} />],
          [t('eventId'), <Id value={delivery.event_id} />],
          [t('tries'), delivery.tries],
          ...(delivery.tried_at === null ? [] : [[t('lastTry'), <Time at={delivery.tried_at} full />] as const]),
          ...(delivery.next_try_at === null ? [] : [[t('nextTry'), <Time at={delivery.next_try_at} full />] as const]),
          ...(status === null ? [] : [[t('answer'), status] as const]),
          ...(failure === null ? [] : [[t('failure'), failure] as const]),
        ]}
      />
      <h3>{t('body')}</h3>
      <CodeBlock label={t('body')} code={indented(delivery.body)} wrap />
      {answer !== null && answer !== '' && (
        <>
          <h3>{t('answerBody')}</h3>
          <CodeBlock label={t('answerBody')} code={answer} wrap />
        </>
      )}
      <FormButtons>
        <Button onClick={onClose}>{t('close')}</Button>
        <Button
          look="primary"
          busy={replay.isPending}
          onClick={() =>
            replay.mutate({ params: { path: { id: delivery.id } } }, { onSuccess: () => toast(t('replayed')) })
          }
        >
          {t('replay')}
        </Button>
      </FormButtons>
    </Dialog>
  );
}
