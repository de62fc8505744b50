import type { Translated } from '../../../i18n/text.ts';
import type { OperatorRevenueTexts } from './en.ts';

const zh: Translated<OperatorRevenueTexts> = {
  account: '账户',
  by: '分组方式',
  cached: '缓存',
  cost: '成本',
  cut: '显示前 {n} 行，共 {all} 行；导出文件包含全部。',
  empty: '没有用量',
  emptyText: '这个月没有用量。',
  export: '导出 CSV',
  input: '输入',
  lead: '所有账户的收费、成本和余额。月份按 UTC 计算。',
  margin: '毛利',
  marginNote: '{all} 行中成本已知的 {n} 行',
  model: '模型',
  month: '月份',
  noCosts: '词元的成本写在配置中：models[].costs。',
  output: '输出',
  requests: '请求',
  revenue: '收入',
  revenueNote: '未扣除退款。',
  tier: '服务等级',
  title: '收入',
  uncharged: '未收费',
};

export default zh;
