import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';

import { useGet, useRefresh, useSend } from '../../api/use-api.ts';
import { Button, IconButton } from '../../components/button.tsx';
import { Id } from '../../components/code.tsx';
import { ConfirmDialog, FormDialog } from '../../components/dialog.tsx';
import { Time } from '../../components/figures.tsx';
import { TextField } from '../../components/form.tsx';
import { MoreIcon } from '../../components/icons.tsx';
import { Menu, MenuItem, MenuLine } from '../../components/menu.tsx';
import { Facts, Page, Panel } from '../../components/page.tsx';
import { EmptyState, ErrorNote, Note, Skeleton } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { endpointRoute } from './routes.ts';
import { Deliveries } from './deliveries.tsx';
import { EndpointState } from './endpoint-state.tsx';
import { EventFields } from './event-fields.tsx';
import { eventsIn } from './events.ts';
import type { Endpoint } from './events.ts';
import type { AlertTexts } from './messages/en.ts';

const refreshes = ['/v1/webhook_endpoints'];

export default function EndpointPage() {
  const t = useText<AlertTexts>('alerts');
  const { id } = endpointRoute.useParams();
  const found = useGet('/v1/webhook_endpoints/{id}', { path: { id } }, { every: 5000 });
  const crumb = <Link to="/alerts">{t('title')}</Link>;
  if (found.error?.status === 404)
    return (
      <Page title={t('gone')} crumb={crumb}>
        <EmptyState title={t('gone')} action={<Link to="/alerts">{t('title')}</Link>}>
          {t('goneText')}
        </EmptyState>
      </Page>
    );
  if (found.data === undefined)
    return (
      <Page title={t('endpoint')} crumb={crumb}>
        {found.error === null ? (
          <Skeleton lines={8} />
        ) : (
          <ErrorNote error={found.error} onRetry={() => void found.refetch()} />
        )}
      </Page>
    );
  return <Shown key={id} of={found.data} crumb={crumb} />;
}

function Shown({ of: endpoint, crumb }: { readonly of: Endpoint; readonly crumb: ReactNode }) {
  const t = useText<AlertTexts>('alerts');
  const [open, setOpen] = useState<'change' | 'delete'>();
  const change = useSend('patch', '/v1/webhook_endpoints/{id}', { refreshes });
  const test = useSend('post', '/v1/webhook_endpoints/{id}/test', { refreshes });
  const close = (): void => setOpen(undefined);
  const params = { path: { id: endpoint.id } };
  const isActive = endpoint.status === 'active';
  const error = change.error ?? test.error;
  const actions = (
    <>
      <Button onClick={() => setOpen('change')}>{t('change')}</Button>
      <Button
        look="primary"
        busy={test.isPending}
        disabled={!isActive}
        onClick={() => test.mutate({ params }, { onSuccess: () => toast(t('pingSent')) })}
      >
        {t('test')}
      </Button>
      <Menu trigger={<IconButton label={t('more')} look="plain" icon={<MoreIcon />} />}>
        <MenuItem onSelect={() => change.mutate({ params, body: { enabled: !isActive } })}>
          {isActive ? t('disable') : t('enable')}
        </MenuItem>
        <MenuLine />
        <MenuItem danger onSelect={() => setOpen('delete')}>
          {t('delete')}
        </MenuItem>
      </Menu>
    </>
  );
  return (
    <Page title={t('endpoint')} crumb={crumb} lead={<code>{endpoint.url}</code>} actions={actions}>
      {error !== null && <ErrorNote error={error} />}
      {endpoint.disabled_reason === 'failing' && <Note tone="warn">{t('gaveUpText')}</Note>}
      <Panel>
        <Facts
          facts={[
            [t('state'), <EndpointState of={endpoint} />],
            [t('events'), endpoint.events === null ? t('allEvents') : endpoint.events.join(', ') || '–'],
            ...(endpoint.description === '' ? [] : [[t('description'), endpoint.description] as const]),
            [t('created'), <Time at={endpoint.created_at} />],
            [t('id'), <Id value={endpoint.id} />],
          ]}
        />
      </Panel>
      <Deliveries of={endpoint.id} />
      {open === 'change' && <ChangeDialog of={endpoint} onClose={close} />}
      {open === 'delete' && <DeleteDialog of={endpoint} onClose={close} />}
    </Page>
  );
}

function ChangeDialog({ of: endpoint, onClose }: { readonly of: Endpoint; readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const change = useSend('patch', '/v1/webhook_endpoints/{id}', { refreshes });
  const submit = (form: FormData): void => {
    const [url, description] = ['url', 'description'].map((name) => String(form.get(name)).trim());
    change.mutate(
      { params: { path: { id: endpoint.id } }, body: { url: url!, description: description!, events: eventsIn(form) } },
      {
        onSuccess: () => {
          toast(t('saved'));
          onClose();
        },
      },
    );
  };
  return (
    <FormDialog
      title={t('changeEndpoint')}
      action={t('save')}
      busy={change.isPending}
      error={change.error}
      onSubmit={submit}
      onClose={onClose}
    >
      <TextField
        name="url"
        label={t('url')}
        hint={t('urlHint')}
        type="url"
        defaultValue={endpoint.url}
        maxLength={2000}
        autoComplete="off"
        spellCheck={false}
      />
      <TextField
        name="description"
        label={t('description')}
        defaultValue={endpoint.description}
        optional
        maxLength={200}
        autoComplete="off"
      />
      <EventFields chosen={endpoint.events} />
    </FormDialog>
  );
}

function DeleteDialog({ of: endpoint, onClose }: { readonly of: Endpoint; readonly onClose: () => void }) {
  const t = useText<AlertTexts>('alerts');
  const navigate = endpointRoute.useNavigate();
  const refresh = useRefresh();
  const remove = useSend('delete', '/v1/webhook_endpoints/{id}');
  const confirm = (): void =>
    remove.mutate(
      { params: { path: { id: endpoint.id } } },
      {
        onSuccess: () => {
          toast(t('deleted'));
          // First away from here: what is asked for again is no longer there.
          void navigate({ to: '/alerts' as never }).then(() => refresh(refreshes));
        },
      },
    );
  return (
    <ConfirmDialog
      title={t('deleteEndpointTitle')}
      action={t('delete')}
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {t('deleteEndpointText')}
    </ConfirmDialog>
  );
}
