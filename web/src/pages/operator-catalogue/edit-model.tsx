import { FieldRow, MoreFields, Select, TextArea, TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import { ChangeDialog } from './change.tsx';
import type { Change } from './change.tsx';
import type { OperatorCatalogueTexts } from './messages/en.ts';
import type { Model } from './price-dialog.tsx';

type Settings = NonNullable<Change['edit_model']>['set'];

interface Props {
  readonly model: Model;
  readonly onClose: () => void;
}

/** Names, limits, who may use it, and what applies where a request says nothing. */
export function EditModel({ model, onClose }: Props) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const { system = '', ...sampling } = model.written_defaults as Readonly<Record<string, string | number>>;
  return (
    <ChangeDialog
      title={t('editOf', { name: model.display_name })}
      onClose={onClose}
      changeOf={(form) => changeOf(model, form)}
    >
      <TextField name="display_name" label={t('displayName')} defaultValue={model.display_name} maxLength={1000} />
      <TextArea name="description" label={t('description')} defaultValue={model.description ?? ''} rows={2} optional />
      <TextField
        name="aliases"
        label={t('aliases')}
        hint={t('aliasesHint')}
        defaultValue={model.aliases.map(({ name }) => name).join(', ')}
        spellCheck={false}
        optional
      />
      <TextField
        name="dedicated_to"
        label={t('forAccounts')}
        hint={t('dedicatedHint')}
        defaultValue={model.dedicated_to.join(', ')}
        spellCheck={false}
        optional
      />
      <FieldRow>
        <TextField
          name="context_length"
          label={t('context')}
          hint={t('tokens')}
          type="number"
          min={16}
          defaultValue={model.context_length}
        />
        <TextField
          name="max_output_tokens"
          label={t('maxOutput')}
          hint={t('asContextHint')}
          type="number"
          min={1}
          defaultValue={model.max_output_tokens ?? ''}
          optional
        />
      </FieldRow>
      <MoreFields summary={t('defaults')}>
        <TextArea name="system" label={t('systemText')} defaultValue={system} rows={3} optional />
        <TextArea
          name="defaults"
          label={t('samplingDefaults')}
          hint={t('samplingDefaultsHint')}
          defaultValue={Object.entries(sampling)
            .map(([name, value]) => `${name}: ${value}`)
            .join('\n')}
          rows={3}
          spellCheck={false}
          optional
        />
        <Select
          name="sampling"
          label={t('samplingOf')}
          defaultValue={model.sampling}
          options={(['honor', 'ignore', 'fixed'] as const).map((value) => ({ value, text: t(value) }))}
        />
      </MoreFields>
    </ChangeDialog>
  );
}

const wordsIn = (text: string): readonly string[] => text.split(/[\s,]+/).filter((word) => word !== '');

/** Only what differs, so that nothing is written into the file that is not meant. */
function changeOf(model: Model, form: FormData): Change | undefined {
  const textOf = (name: string): string => String(form.get(name) ?? '').trim();
  const orNull = <Value,>(list: readonly Value[]): Value[] | null => (list.length === 0 ? null : [...list]);
  const aliases = wordsIn(textOf('aliases')).map(
    (name) => model.aliases.find((alias) => alias.name === name) ?? { name },
  );
  const output = textOf('max_output_tokens');
  const wanted: Settings = {
    display_name: textOf('display_name') === model.id ? null : textOf('display_name'),
    description: textOf('description') || null,
    aliases: orNull(aliases),
    dedicated_to: orNull(wordsIn(textOf('dedicated_to'))),
    context_length: Number(textOf('context_length')),
    max_output_tokens: output === '' ? null : Number(output),
    sampling: textOf('sampling') as Model['sampling'],
    defaults: defaultsIn(textOf('system'), textOf('defaults')),
  };
  const present: Settings = {
    display_name: model.display_name === model.id ? null : model.display_name,
    description: model.description,
    aliases: orNull(model.aliases),
    dedicated_to: orNull(model.dedicated_to),
    context_length: model.context_length,
    max_output_tokens: model.max_output_tokens,
    sampling: model.sampling,
    defaults: Object.keys(model.written_defaults).length === 0 ? null : model.written_defaults,
  };
  const differing = Object.entries(wanted).filter(
    ([name, value]) => JSON.stringify(value) !== JSON.stringify(present[name as keyof Settings]),
  );
  return differing.length === 0
    ? undefined
    : { edit_model: { model: model.id, set: Object.fromEntries(differing) as Settings } };
}

/** `temperature: 0.7`, a line each; what is no number is sent as it is, and the server says what is wrong with it. */
function defaultsIn(system: string, text: string): Exclude<Settings['defaults'], undefined> {
  const lines = text.split('\n').flatMap((line) => {
    const [name = '', value = ''] = line.split(/[:=]/, 2).map((part) => part.trim());
    return name === '' ? [] : [[name, value !== '' && Number.isFinite(Number(value)) ? Number(value) : value] as const];
  });
  const defaults = { ...(system === '' ? {} : { system }), ...Object.fromEntries(lines) };
  return Object.keys(defaults).length === 0 ? null : defaults;
}

/** The day on which it ends, and what comes instead. */
export function RetireModel({ model, models, onClose }: Props & { readonly models: readonly Model[] }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const others = models.filter(({ id }) => id !== model.id);
  const change = (form: FormData): Change => {
    const day = String(form.get('deprecation_date'));
    const successor = String(form.get('successor'));
    return {
      edit_model: {
        model: model.id,
        set: {
          deprecation_date: day === '' ? null : day,
          successor: successor === '' ? null : successor,
          leads_to_successor: form.get('leads') === 'yes' && day !== '' && successor !== '',
        },
      },
    };
  };
  return (
    <ChangeDialog
      title={t('retireOf', { name: model.display_name })}
      text={t('retireText')}
      onClose={onClose}
      changeOf={change}
    >
      <FieldRow>
        <TextField
          name="deprecation_date"
          label={t('retireDay')}
          hint={t('retireDayHint')}
          type="date"
          defaultValue={model.deprecation_date ?? ''}
          optional
        />
        <Select
          name="successor"
          label={t('successor')}
          defaultValue={model.successor ?? ''}
          options={[{ value: '', text: t('none') }, ...others.map(({ id }) => ({ value: id, text: id }))]}
        />
      </FieldRow>
      <Select
        name="leads"
        label={t('afterwards')}
        defaultValue={model.leads_to_successor ? 'yes' : 'no'}
        options={[
          { value: 'no', text: t('refuses') },
          { value: 'yes', text: t('leads') },
        ]}
      />
    </ChangeDialog>
  );
}

/** Takes it out of the file. */
export function RemoveModel({ model, onClose }: Props) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  return (
    <ChangeDialog
      title={t('removeOf', { name: model.display_name })}
      text={t('removeText')}
      danger
      onClose={onClose}
      changeOf={() => ({ remove_model: { model: model.id } })}
    />
  );
}

/** Gives a backend no more requests, or gives it some again. */
export function SwitchBackend({ model, backend, onClose }: Props & { readonly backend: string }) {
  const t = useText<OperatorCatalogueTexts>('operator-catalogue');
  const { written_backends: all } = model;
  const disabled = all.some(({ name, disabled: is }) => name === backend && !is);
  const isLast = disabled && all.filter(({ disabled: is }) => !is).length === 1;
  return (
    <ChangeDialog
      title={t(disabled ? 'disableOf' : 'enableOf', { name: backend })}
      text={isLast ? t('disableLast') : t(disabled ? 'disableText' : 'enableText')}
      danger={isLast}
      onClose={onClose}
      changeOf={() => ({ set_backend: { model: model.id, backend, disabled } })}
    />
  );
}
