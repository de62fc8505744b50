import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { useList, useSend } from '../../api/use-api.ts';
import { Button } from '../../components/button.tsx';
import { Dialog, FormDialog } from '../../components/dialog.tsx';
import { Time } from '../../components/figures.tsx';
import { FormButtons, TextField } from '../../components/form.tsx';
import { Panel } from '../../components/page.tsx';
import { SecretField } from '../../components/secret-field.tsx';
import { EmptyState, Note } from '../../components/state.tsx';
import { DataTable } from '../../components/table.tsx';
import type { Column } from '../../components/table.tsx';
import { useText } from '../../i18n/text.ts';
import { EndpointState } from './endpoint-state.tsx';
import { EventFields } from './event-fields.tsx';
import { eventsIn } from './events.ts';
import type { Endpoint } from './events.ts';
import type { AlertTexts } from './messages/en.ts';
import styles from './alerts.module.css';

/** Where events of the account are sent. */
export function Endpoints() {
  const t = useText<AlertTexts>('alerts');
  const list = useList('/v1/webhook_endpoints', undefined, { every: 5000 });
  const [isAdding, setAdding] = useState(false);
  const columns: readonly Column<Endpoint>[] = [
    {
      head: t('url'),
      main: true,
      cell: ({ id, url, description }) => (
        <>
          <Link className={styles['url']} to={`/alerts/webhooks/${id}`}>
            {url}
          </Link>
          {description !== '' && (
            <div className={styles['quiet']}>
              <bdi>{description}</bdi>
            </div>
          )}
        </>
      ),
    },
    { head: t('state'), cell: (endpoint) => <EndpointState of={endpoint} /> },
    {
      head: t('events'),
      cell: ({ events }) => (events === null ? t('allEvents') : t('nEvents', { n: events.length })),
    },
    { head: t('created'), cell: ({ created_at: at }) => <Time at={at} dateOnly /> },
  ];
  const add = (
    <Button small onClick={() => setAdding(true)}>
      {t('addEndpoint')}
    </Button>
  );
  return (
    <Panel title={t('endpoints')} flush actions={list.rows.length > 0 && add}>
      <DataTable
        label={t('endpoints')}
        columns={columns}
        list={list}
        keyOf={({ id }) => id}
        empty={
          <EmptyState title={t('noEndpoints')} action={add}>
            {t('noEndpointsText')}
          </EmptyState>
        }
      />
      {isAdding && <AddDialog onClose={() => setAdding(false)} />}
    </Panel>
  );
}

/** The address and the events; then the secret, once. */
function AddDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const create = useSend('post', '/v1/webhook_endpoints', { refreshes: ['/v1/webhook_endpoints'] });
  if (create.data !== undefined) return <SecretDialog secret={create.data.secret} onClose={onClose} />;
  const submit = (form: FormData): void => {
    const [url, description] = ['url', 'description'].map((name) => String(form.get(name)).trim());
    create.mutate({ body: { url: url!, description: description!, events: eventsIn(form) } });
  };
  return (
    <FormDialog
      title={t('addEndpoint')}
      action={t('addEndpoint')}
      busy={create.isPending}
      error={create.error}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField
        name="url"
        label={t('url')}
        hint={t('urlHint')}
        type="url"
        placeholder="https://example.org/hooks/tokenhouse"
        maxLength={2000}
        autoComplete="off"
        spellCheck={false}
        autoFocus
      />
      <TextField name="description" label={t('description')} optional maxLength={200} autoComplete="off" />
      <EventFields chosen={null} />
    </FormDialog>
  );
}

/** Shown once: it closes only when it was copied, or when the person says that they have it. */
function SecretDialog({ secret, onClose }: { readonly secret: string; readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const [isSafe, setSafe] = useState(false);
  return (
    <Dialog title={t('secretTitle')} onClose={onClose} dismissable={isSafe}>
      <Note tone="warn">{t('secretText')}</Note>
      <SecretField value={secret} label={t('secret')} copyLabel={t('copySecret')} onCopied={() => setSafe(true)} />
      <p className={styles['quiet']}>
        {t.rich('verifyHint', {
          link: (words) => (
            <a href="/docs/alerts#webhooks" target="_blank" rel="noopener">
              {words}
            </a>
          ),
        })}
      </p>
      <FormButtons>
        <Button look={isSafe ? 'primary' : 'plain'} onClick={onClose}>
          {isSafe ? t('done') : t('haveIt')}
        </Button>
      </FormButtons>
    </Dialog>
  );
}
