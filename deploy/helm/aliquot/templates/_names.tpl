{{/* On every object. */}}
{{- define "aliquot.labels" -}}
{{ include "aliquot.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* On pods, which are not to be restarted for another version of the chart. */}}
{{- define "aliquot.podLabels" -}}
app.kubernetes.io/name: aliquot
app.kubernetes.io/part-of: aliquot
{{- end }}

{{/* On which nodes pods may be. */}}
{{- define "aliquot.where" -}}
nodeSelector:
  {{- toYaml .nodeSelector | nindent 2 }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Of the cluster's own version, without what its distributor has put behind it. */}}
{{- define "aliquot.schedulerImage" -}}
registry.k8s.io/kube-scheduler:{{ regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version }}
{{- end }}

{{- define "aliquot.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: aliquot-scheduler
# A sample of the nodes would hide the best GPU.
percentageOfNodesToScore: 100
profiles:
  - schedulerName: aliquot-scheduler
extenders:
  - urlPrefix: http://aliquot-extender.{{ .Release.Namespace }}.svc:9420/scheduler
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    bindVerb: bind
    # The scheduler's own scores add up to some hundred points; ours are multiplied by ten times this.
    weight: 1000
    nodeCacheCapable: true
    # Without the extender nobody knows which GPU has room: pods wait for it.
    ignorable: false
    httpTimeout: 30s
    managedResources:
      - name: aliquot.dev/gpu-memory
        ignoredByScheduler: false
      - name: aliquot.dev/gpu-compute
        ignoredByScheduler: false
{{- end }}
