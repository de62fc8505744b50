import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';

import { mayMakeKeys, useSession } from '../../api/session.ts';
import { useGet, useSend } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button, IconButton, LinkButton } from '../../components/button.tsx';
import { Id } from '../../components/code.tsx';
import { changesOf } from '../../components/changes.ts';
import { ConfirmDialog, FormDialog } from '../../components/dialog.tsx';
import { useErrorTile } from '../../components/error-tile.tsx';
import { Money, Time } from '../../components/figures.tsx';
import { Select } from '../../components/form.tsx';
import { MoreIcon } from '../../components/icons.tsx';
import { Menu, MenuItem, MenuLine } from '../../components/menu.tsx';
import { Facts, Page, Panel, Tiles } from '../../components/page.tsx';
import { useModelBudgetFacts } from '../../components/model-budgets.tsx';
import { useRateFacts } from '../../components/rates.tsx';
import { EmptyState, ErrorNote, Note, Skeleton } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { formatCents } from '../../format/money.ts';
import { useText } from '../../i18n/text.ts';
import { keyRoute } from './routes.ts';
import { KeyFields, settingsIn } from './key-fields.tsx';
import { NewSecretDialog } from './new-secret.tsx';
import { SpentBar } from './spent.tsx';
import type { Key } from './key.ts';
import type { KeyTexts } from './messages/en.ts';

const refreshes = ['/v1/keys'];

export default function KeyPage() {
  const t = useText<KeyTexts>('keys');
  const { id } = keyRoute.useParams();
  const found = useGet('/v1/keys/{id}', { path: { id } }, { every: 2000 });
  const crumb = <Link to="/keys">{t('title')}</Link>;
  const isGone = found.error?.status === 404 || (found.data !== undefined && found.data.revoked_at !== null);
  if (isGone)
    return (
      <Page title={t('gone')} crumb={crumb}>
        <EmptyState title={t('gone')} action={<Link to="/keys">{t('title')}</Link>}>
          {t('goneText')}
        </EmptyState>
      </Page>
    );
  if (found.data === undefined)
    return (
      <Page title={t('key')} crumb={crumb}>
        {found.error === null ? (
          <Skeleton lines={8} />
        ) : (
          <ErrorNote error={found.error} onRetry={() => void found.refetch()} />
        )}
      </Page>
    );
  return <ShownKey key={id} of={found.data} crumb={crumb} />;
}

function ShownKey({ of: key, crumb }: { readonly of: Key; readonly crumb: ReactNode }) {
  const t = useText<KeyTexts>('keys');
  const { may, me } = useSession();
  const rates = useRateFacts(key);
  const modelBudgets = useModelBudgetFacts(key.budgets_by_model);
  const [open, setOpen] = useState<'change' | 'rotate' | 'revoke'>();
  const [secret, setSecret] = useState<string>();
  const change = useSend('patch', '/v1/keys/{id}', { refreshes });
  const errors = useErrorTile({ key: key.id });
  const close = (): void => setOpen(undefined);
  const path = { id: key.id };
  const owner = key.user_id === null ? t('ofAccount') : key.user_id === me.id ? t('yours') : <code>{key.user_id}</code>;
  const requests = (
    <LinkButton to="/requests" search={{ key: key.id } as never}>
      {t('requests')}
    </LinkButton>
  );
  const actions = may(mayMakeKeys) ? (
    <>
      {requests}
      <Button onClick={() => setOpen('rotate')}>{t('rotate')}</Button>
      <Button look="primary" onClick={() => setOpen('change')}>
        {t('change')}
      </Button>
      <Menu trigger={<IconButton label={t('more')} look="plain" icon={<MoreIcon />} />}>
        <MenuItem onSelect={() => change.mutate({ params: { path }, body: { disabled: !key.disabled } })}>
          {key.disabled ? t('resume') : t('pause')}
        </MenuItem>
        <MenuLine />
        <MenuItem danger onSelect={() => setOpen('revoke')}>
          {t('revoke')}
        </MenuItem>
      </Menu>
    </>
  ) : (
    requests
  );
  return (
    <Page title={key.name} crumb={crumb} lead={<code>{key.label}</code>} actions={actions}>
      {change.error !== null && <ErrorNote error={change.error} />}
      {key.disabled && <Note tone="warn">{t('pausedText')}</Note>}
      {key.previous_secret_ends_at !== null && (
        <Note>
          {t('oldSecret')} <Time at={key.previous_secret_ends_at} relative />
        </Note>
      )}
      <Tiles
        tiles={[
          {
            name: t('budget'),
            value: key.limit_microcents === null ? t('noBudget') : <SpentBar of={key} />,
            ...(key.limit_resets_at === null
              ? {}
              : {
                  note: (
                    <>
                      {t('renews')}: <Time at={key.limit_resets_at} />
                    </>
                  ),
                }),
          },
          { name: t('today'), value: <Money microcents={key.usage_daily} /> },
          { name: t('thisMonth'), value: <Money microcents={key.usage_monthly} /> },
          { name: t('inAll'), value: <Money microcents={key.usage} /> },
          errors,
        ]}
      />
      <Panel title={t('facts')}>
        <Facts
          facts={[
            [t('id'), <Id value={key.id} />],
            [
              t('state'),
              key.disabled ? <Badge tone="warn">{t('paused')}</Badge> : <Badge tone="good">{t('active')}</Badge>,
            ],
            [t('owner'), owner],
            [t('models'), key.allowed_models === null ? t('allModels') : key.allowed_models.join(', ')],
            [t('endpoints'), key.allowed_endpoints === null ? t('allEndpoints') : key.allowed_endpoints.join(', ')],
            [t('addresses'), key.ip_ranges === null ? t('everywhere') : key.ip_ranges.join(', ')],
            ...rates,
            ...modelBudgets,
            [
              t('sessionBudget'),
              key.session_budget_cents === null ? t('noBudget') : formatCents(key.session_budget_cents),
            ],
            [t('serviceTier'), key.service_tier ?? t('asAccount')],
            [t('concurrency'), key.max_concurrency ?? t('unlimited')],
            [t('zdr'), key.zdr_only ? t('yes') : t('no')],
            [t('tags'), key.tags.length === 0 ? '–' : key.tags.join(', ')],
            [t('created'), <Time at={key.created_at} />],
            [t('lastUsed'), key.last_used_at === null ? t('never') : <Time at={key.last_used_at} relative />],
            [t('expires'), key.expires_at === null ? t('never') : <Time at={key.expires_at} />],
          ]}
        />
      </Panel>
      {open === 'change' && <ChangeDialog of={key} onClose={close} />}
      {open === 'rotate' && (
        <RotateDialog
          of={key}
          onClose={close}
          onSecret={(made) => {
            close();
            setSecret(made);
          }}
        />
      )}
      {open === 'revoke' && <RevokeDialog of={key} onClose={close} />}
      {secret !== undefined && (
        <NewSecretDialog secret={secret} allowed={key.allowed_models} onClose={() => setSecret(undefined)} />
      )}
    </Page>
  );
}

function ChangeDialog({ of: key, onClose }: { readonly of: Key; readonly onClose: () => void }) {
  const t = useText<KeyTexts>('keys');
  const change = useSend('patch', '/v1/keys/{id}', { refreshes });
  const submit = (form: FormData): void => {
    const body = changesOf(settingsIn(form, Date.now(), key), key);
    if (Object.keys(body).length === 0) return onClose();
    change.mutate(
      { params: { path: { id: key.id } }, body },
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
      title={t('change')}
      action={t('save')}
      busy={change.isPending}
      error={change.error}
      onSubmit={submit}
      onClose={onClose}
    >
      <KeyFields of={key} />
    </FormDialog>
  );
}

/** Seconds that the old secret goes on working: time to put the new one everywhere. */
const overlaps = [
  [0, 'atOnce'],
  [3600, 'oneHour'],
  [86_400, 'oneDay'],
  [604_800, 'sevenDays'],
] as const;

interface RotateProps {
  readonly of: Key;
  readonly onClose: () => void;
  readonly onSecret: (secret: string) => void;
}

function RotateDialog({ of: key, onClose, onSecret }: RotateProps) {
  const t = useText<KeyTexts>('keys');
  const rotate = useSend('post', '/v1/keys/{id}/rotate', { refreshes });
  const submit = (form: FormData): void =>
    rotate.mutate(
      { params: { path: { id: key.id } }, body: { overlap_seconds: Number(form.get('overlap_seconds')) } },
      { onSuccess: (made) => onSecret(made.key) },
    );
  return (
    <FormDialog
      title={t('rotate')}
      action={t('rotate')}
      busy={rotate.isPending}
      error={rotate.error}
      text={t('rotateText')}
      onSubmit={submit}
      onClose={onClose}
    >
      <Select
        name="overlap_seconds"
        label={t('overlap')}
        defaultValue="86400"
        options={overlaps.map(([seconds, text]) => ({ value: String(seconds), text: t(text) }))}
      />
    </FormDialog>
  );
}

function RevokeDialog({ of: key, onClose }: { readonly of: Key; readonly onClose: () => void }) {
  const t = useText<KeyTexts>('keys');
  const navigate = keyRoute.useNavigate();
  const revoke = useSend('delete', '/v1/keys/{id}', { refreshes });
  const confirm = (): void =>
    revoke.mutate(
      { params: { path: { id: key.id } } },
      {
        onSuccess: () => {
          toast(t('revoked', { name: key.name }));
          void navigate({ to: '/keys' as never });
        },
      },
    );
  return (
    <ConfirmDialog
      title={t('revokeTitle', { name: key.name })}
      action={t('revoke')}
      danger
      busy={revoke.isPending}
      error={revoke.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {t('revokeText')}
    </ConfirmDialog>
  );
}
