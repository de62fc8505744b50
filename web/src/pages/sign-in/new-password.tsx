import { passwordLimits } from '../../app/password.ts';
import { TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import type { SignInTexts } from './messages/en.ts';

export function NewPassword({ optional = false }: { readonly optional?: boolean }) {
  const t = useText<SignInTexts>('sign-in');
  return (
    <TextField
      name="password"
      label={t('newPassword')}
      hint={t('passwordHint', { n: passwordLimits.minLength })}
      type="password"
      autoComplete="new-password"
      {...passwordLimits}
      optional={optional}
    />
  );
}
