# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_aks_flex_node_global_optspecs
    string join \n log-level= h/help V/version
end

function __fish_aks_flex_node_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_aks_flex_node_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_aks_flex_node_using_subcommand
    set -l cmd (__fish_aks_flex_node_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -s h -l help -d 'Print help'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -s V -l version -d 'Print version'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "start" -d 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "bootstrap" -d 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "status" -d 'Show what the node is now'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "upgrade" -d 'Bring the node to what the configuration says, and back by itself when that does not come up'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "rollback" -d 'Go back to the version that ran before, or to another one that is installed'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "restart" -d 'Restart containerd and kubelet; pods are left alone'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "stop" -d 'Stop containerd and kubelet until `start-node`; a reboot does not start them'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "start-node" -d 'Start containerd and kubelet after a `stop`'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "slots" -d 'The installed versions'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "reset" -d 'Take everything away that `start` made; the configuration stays'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "unbootstrap" -d 'Take everything away that `start` made; the configuration stays'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "daemon" -d 'Keep the node: what the agent\'s service runs'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "agent" -d 'Keep the node: what the agent\'s service runs'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "plan" -d 'Print the steps that an operation would run; changes nothing'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "bundle" -d 'Pack release files that you have into an offline bundle'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "version" -d 'Print what this program is'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "completion" -d 'Print a completion script for a shell'
complete -c aks-flex-node -n "__fish_aks_flex_node_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start" -l config -d 'The configuration file; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start" -l wait -d 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]' -r -f -a "ready\t'Until the Node is Ready'
joined\t'Until kubelet runs and has joined'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start" -l timeout -d 'How long to wait for it, as 90s or 5m' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bootstrap" -l config -d 'The configuration file; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bootstrap" -l wait -d 'What to wait for at the end [default: ready; a node that only lacks its network plugin then ends well]' -r -f -a "ready\t'Until the Node is Ready'
joined\t'Until kubelet runs and has joined'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bootstrap" -l timeout -d 'How long to wait for it, as 90s or 5m' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bootstrap" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bootstrap" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bootstrap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand status" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand status" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -l config -d 'The configuration file; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -l to-config -d 'Go to what this file says; the configuration stays as it is' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -l to-version -d 'Go to this Kubernetes version with everything else as it runs now' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -s y -l yes -d 'Do not ask, neither before an older version nor before a goal that a person went back from'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -l retry -d 'Try a goal again that failed'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -l without-rollback -d 'Go on although the version that runs is damaged: a failure then leaves the new version as it is'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand upgrade" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand rollback" -l to -d 'The version to go to, as `slots list` names it [default: the one that ran before]' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand rollback" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand rollback" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand rollback" -s y -l yes -d 'Do not ask'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand rollback" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand restart" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand restart" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand restart" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand stop" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand stop" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start-node" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start-node" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand start-node" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and not __fish_seen_subcommand_from list prune repair help" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and not __fish_seen_subcommand_from list prune repair help" -s h -l help -d 'Print help'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and not __fish_seen_subcommand_from list prune repair help" -f -a "list" -d 'Show them with their sizes'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and not __fish_seen_subcommand_from list prune repair help" -f -a "prune" -d 'Remove all but the active one, the one before it, what still runs, and one more'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and not __fish_seen_subcommand_from list prune repair help" -f -a "repair" -d 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and not __fish_seen_subcommand_from list prune repair help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from list" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from list" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from prune" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from prune" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from prune" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from repair" -l config -d 'The configuration file; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from repair" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from repair" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from repair" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show them with their sizes'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from help" -f -a "prune" -d 'Remove all but the active one, the one before it, what still runs, and one more'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from help" -f -a "repair" -d 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand slots; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand reset" -l kubeconfig -d 'Delete the Node from the cluster too, with this kubeconfig; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand reset" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand reset" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand reset" -s y -l yes -d 'Do not ask'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand reset" -l keep-images -d 'Keep /var/lib/containerd with the images in it'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand reset" -l remove-agent -d 'Remove the installed agent too'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand reset" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand unbootstrap" -l kubeconfig -d 'Delete the Node from the cluster too, with this kubeconfig; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand unbootstrap" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand unbootstrap" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand unbootstrap" -s y -l yes -d 'Do not ask'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand unbootstrap" -l keep-images -d 'Keep /var/lib/containerd with the images in it'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand unbootstrap" -l remove-agent -d 'Remove the installed agent too'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand unbootstrap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand daemon" -l config -d 'The configuration file; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand daemon" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand daemon" -s h -l help -d 'Print help'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand agent" -l config -d 'The configuration file; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand agent" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand agent" -s h -l help -d 'Print help'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -l config -d 'The configuration file; root\'s and not readable by others' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -l to-config -d 'For `upgrade`: to what this file says' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -l to-version -d 'For `upgrade`: to this Kubernetes version with everything else as it runs now' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -l to -d 'For `rollback`: to this version, as `slots list` names it' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -l output -d 'Text for people, or JSON for programs' -r -f -a "text\t'For people'
json\t'For programs: one JSON object per line where things happen over time, one document otherwise'"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -l without-rollback -d 'For `upgrade`: without the way back'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l kubelet -d 'The kubelet program, or an archive that has it' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l kubectl -d 'The kubectl program, likewise' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l containerd -d 'containerd: the release\'s .tar.gz, or a directory with its programs' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l runc -d 'The runc program' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l cni -d 'The CNI plugins: the release\'s .tgz, or a directory with them' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l crictl -d 'crictl: the release\'s .tar.gz, or the program' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l kube-proxy -d 'The kube-proxy program; older agents want it in a bundle, this one does not' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l image -d 'An image archive as `ctr images export` or `docker save` write it; may be repeated' -r -F
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l arch -d 'The architecture of the files [default: this machine\'s]' -r -f -a "amd64\t''
arm64\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l kubernetes-version -d 'The version of kubelet, kubectl and kube-proxy, where neither file name nor program tells it' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l containerd-version -d 'The version of containerd, likewise' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l runc-version -d 'The version of runc, likewise' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l cni-version -d 'The version of the CNI plugins, likewise' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l crictl-version -d 'The version of crictl, likewise' -r
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand bundle" -s h -l help -d 'Print help'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand version" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand version" -s h -l help -d 'Print help'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand completion" -l log-level -d 'How much is logged on standard error. Default: warn for commands; for the daemon what the configuration says' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand completion" -s h -l help -d 'Print help'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "start" -d 'Make this host a node of the cluster that the configuration names; running it again changes nothing'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "status" -d 'Show what the node is now'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "upgrade" -d 'Bring the node to what the configuration says, and back by itself when that does not come up'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "rollback" -d 'Go back to the version that ran before, or to another one that is installed'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "restart" -d 'Restart containerd and kubelet; pods are left alone'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "stop" -d 'Stop containerd and kubelet until `start-node`; a reboot does not start them'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "start-node" -d 'Start containerd and kubelet after a `stop`'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "slots" -d 'The installed versions'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "reset" -d 'Take everything away that `start` made; the configuration stays'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "daemon" -d 'Keep the node: what the agent\'s service runs'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "plan" -d 'Print the steps that an operation would run; changes nothing'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "bundle" -d 'Pack release files that you have into an offline bundle'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "version" -d 'Print what this program is'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "completion" -d 'Print a completion script for a shell'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and not __fish_seen_subcommand_from start status upgrade rollback restart stop start-node slots reset daemon plan bundle version completion help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and __fish_seen_subcommand_from slots" -f -a "list" -d 'Show them with their sizes'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and __fish_seen_subcommand_from slots" -f -a "prune" -d 'Remove all but the active one, the one before it, what still runs, and one more'
complete -c aks-flex-node -n "__fish_aks_flex_node_using_subcommand help; and __fish_seen_subcommand_from slots" -f -a "repair" -d 'Put the files of a damaged or incomplete version right from the artifact source; what runs goes on running'
