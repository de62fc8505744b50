import { useState } from 'react';

import { useSession } from '../../api/session.ts';
import { useGet, useSend } from '../../api/use-api.ts';
import { passwordLimits } from '../../app/password.ts';
import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { ConfirmDialog, FormDialog } from '../../components/dialog.tsx';
import { TextField } from '../../components/form.tsx';
import { Facts, Panel } from '../../components/page.tsx';
import { ErrorNote, Note } from '../../components/state.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { Passkeys } from './passkeys.tsx';
import { Sessions } from './sessions.tsx';
import { TwoFactor } from './two-factor.tsx';
import { useRefreshMe } from './use-me.ts';
import type { SettingsTexts } from './messages/en.ts';

interface Provider {
  readonly id: string;
  readonly name: string;
}

/** How one signs in, and where one is signed in. */
export function SecuritySettings() {
  return (
    <>
      <SignIn />
      <TwoFactor />
      <Passkeys />
      <Sessions />
    </>
  );
}

function SignIn() {
  const t = useText<SettingsTexts>('settings');
  const { me } = useSession();
  const known = useGet('/v1/auth/providers');
  const [isOpen, setOpen] = useState(false);
  const [unlinked, setUnlinked] = useState<Provider>();
  const ask = useSend('post', '/v1/auth/password/forgot');
  const offered = known.data?.data ?? [];
  // One that the server no longer offers is known by its id alone.
  const gone = me.providers.filter((id) => !offered.some((provider) => provider.id === id));
  const providers: readonly Provider[] = [...offered, ...gone.map((id) => ({ id, name: id }))];
  const action = me.has_password ? (
    <Button small onClick={() => setOpen(true)}>
      {t('changePassword')}
    </Button>
  ) : (
    <Button
      small
      busy={ask.isPending}
      disabled={ask.isSuccess}
      onClick={() => ask.mutate({ body: { email: me.email } })}
    >
      {t('getPassword')}
    </Button>
  );
  return (
    <Panel title={t('signIn')} actions={action}>
      {ask.error !== null && <ErrorNote error={ask.error} />}
      {ask.isSuccess && <Note tone="good">{t('passwordLinkSent', { email: me.email })}</Note>}
      <Facts
        facts={[
          [t('password'), me.has_password ? <Badge tone="good">{t('set')}</Badge> : <Badge>{t('notSet')}</Badge>],
          ...providers.map(
            (provider) =>
              [
                provider.name,
                me.providers.includes(provider.id) ? (
                  <>
                    <Badge tone="good">{t('usedProvider')}</Badge>{' '}
                    <Button
                      small
                      look="quiet"
                      aria-label={t('unlinkNamed', { name: provider.name })}
                      onClick={() => setUnlinked(provider)}
                    >
                      {t('unlink')}
                    </Button>
                  </>
                ) : (
                  <span>{t('unusedProvider')}</span>
                ),
              ] as const,
          ),
        ]}
      />
      {isOpen && <PasswordDialog onClose={() => setOpen(false)} />}
      {unlinked !== undefined && <UnlinkDialog of={unlinked} onClose={() => setUnlinked(undefined)} />}
    </Panel>
  );
}

interface UnlinkDialogProps {
  readonly of: Provider;
  readonly onClose: () => void;
}

function UnlinkDialog({ of: { id, name }, onClose }: UnlinkDialogProps) {
  const t = useText<SettingsTexts>('settings');
  const { me } = useSession();
  const unlink = useSend('delete', '/v1/auth/providers/{provider}');
  const refreshMe = useRefreshMe();
  const confirm = (): void =>
    unlink.mutate(
      { params: { path: { provider: id } } },
      {
        onSuccess: () => {
          refreshMe();
          toast(t('unlinked', { name }));
          onClose();
        },
      },
    );
  return (
    <ConfirmDialog
      title={t('unlinkTitle', { name })}
      action={t('unlink')}
      danger
      busy={unlink.isPending}
      error={unlink.error}
      onConfirm={confirm}
      onClose={onClose}
    >
      {t('unlinkText', { name, email: me.email })}
    </ConfirmDialog>
  );
}

function PasswordDialog({ onClose }: { readonly onClose: () => void }) {
  const t = useText<SettingsTexts>('settings');
  const { me } = useSession();
  const change = useSend('post', '/v1/auth/password', { refreshes: ['/v1/auth/sessions'] });
  const submit = (form: FormData): void =>
    change.mutate(
      {
        body: {
          current_password: String(form.get('current_password')),
          new_password: String(form.get('new_password')),
        },
      },
      {
        onSuccess: () => {
          toast(t('passwordChanged'));
          onClose();
        },
      },
    );
  return (
    <FormDialog
      title={t('changePassword')}
      action={t('changePassword')}
      busy={change.isPending}
      error={change.error}
      text={t('changePasswordText')}
      onSubmit={submit}
      onClose={onClose}
    >
      <input type="hidden" name="email" autoComplete="username" value={me.email} readOnly />
      <TextField name="current_password" label={t('currentPassword')} type="password" autoComplete="current-password" />
      <TextField
        name="new_password"
        label={t('newPassword')}
        hint={t('passwordHint', { n: passwordLimits.minLength })}
        type="password"
        autoComplete="new-password"
        {...passwordLimits}
      />
    </FormDialog>
  );
}
